"""What is known of real servers, as checks that run against the sandbox and against anybody's site.

A fact is a function that asks a server and raises `Deviation` if the answer is another one than
its source leads to expect. Its docstring is its claim.
"""
