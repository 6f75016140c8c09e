"""The node agent: starting and ending compute on another machine. Not built yet."""
