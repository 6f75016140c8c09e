"""The SSH door: git, runners, commands. Bytes in, a flow or a read, bytes out."""
