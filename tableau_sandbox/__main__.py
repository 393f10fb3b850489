"""The command `tableau-sandbox`. Without the extra `sandbox`, it names the missing package."""

import sys


def main() -> int:
    """Run the command; return its exit code, which is 1 if a library is not installed."""
    try:
        from tableau_sandbox.command_line import main as run
    except ModuleNotFoundError as error:
        # If a module of the sandbox itself is missing, the installation is broken, and an extra
        # cannot repair it.
        if (error.name or "").startswith("tableau_"):
            raise
        sys.stderr.write(
            f"tableau-sandbox needs {error.name}: pip install 'tableau_pipeline[sandbox]'\n"
        )
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
