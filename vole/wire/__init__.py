"""What crosses a process boundary: the form of every message, its version, its refusal codes.

Bytes and values, no sockets; decides nothing.
"""
