from tableau_pipeline.sandbox.jobs import publish, update_data
from tableau_pipeline.sandbox.jobs.kinds import JobKinds

KINDS: JobKinds = {publish.KIND: publish.PUBLISH, update_data.KIND: update_data.UPDATE_DATA}
