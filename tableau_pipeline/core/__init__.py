"""The values of a refresh, and the ports through which it reaches a server and a journal."""
