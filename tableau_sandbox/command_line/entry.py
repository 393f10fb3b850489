"""The command `tableau-sandbox`, also where only the pipeline is installed."""

import sys


def main() -> int:
    """Run the sandbox; 1 if what it needs is not installed."""
    try:
        from tableau_sandbox.command_line.cli import main as run
    except ModuleNotFoundError as error:
        # If a module of our own is missing, the installation is broken, and no extra repairs it.
        if (error.name or "").startswith("tableau_sandbox"):
            raise
        sys.stderr.write(
            f"tableau-sandbox needs {error.name}: pip install 'tableau_pipeline[sandbox]'\n"
        )
        return 1
    return run()
