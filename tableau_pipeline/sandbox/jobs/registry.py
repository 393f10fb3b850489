from tableau_pipeline.sandbox.jobs import publish, refresh
from tableau_pipeline.sandbox.jobs.kinds import JobKinds

KINDS: JobKinds = {publish.KIND: publish.PUBLISH, refresh.KIND: refresh.REFRESH}
