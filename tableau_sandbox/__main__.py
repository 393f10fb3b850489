"""The command `tableau-sandbox`; without the extra `sandbox`, it says what to install."""

import sys


def main() -> int:
    """Run the command; return its exit code, which is 1 if a library is not installed."""
    try:
        from tableau_sandbox.command_line import main as run
    except ModuleNotFoundError as error:
        # If a module of our own is missing, the installation is broken, and no extra repairs it.
        if (error.name or "").startswith("tableau_"):
            raise
        sys.stderr.write(
            f"tableau-sandbox needs {error.name}: pip install 'tableau_pipeline[sandbox]'\n"
        )
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
