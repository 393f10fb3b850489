"""How Spark starts: its session, and an archive of the classes that it loads."""
