from tableau_pipeline.sandbox.jobs import publish
from tableau_pipeline.sandbox.jobs.kinds import JobKinds

KINDS: JobKinds = {publish.KIND: publish.PUBLISH}
