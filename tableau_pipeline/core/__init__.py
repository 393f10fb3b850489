"""The values of a refresh, and the protocols through which it uses a server and a journal."""
