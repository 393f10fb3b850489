"""`make bench`: alternatives side by side, on equal contents, as ratios."""

from benchmarks.build_extract import compare_with_bare_sql

if __name__ == "__main__":
    compare_with_bare_sql()
