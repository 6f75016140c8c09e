"""The order of steps and the edges of each transaction. Holds no SQL, no rule, no timer."""
