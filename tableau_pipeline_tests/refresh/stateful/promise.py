"""What a refresh promises, checked while it runs and after it."""

from tableau_pipeline_tests.refresh.stateful.actors import Actor, Killed, Sending
from tableau_pipeline_tests.refresh.stateful.server.truth import Published, differences, held
