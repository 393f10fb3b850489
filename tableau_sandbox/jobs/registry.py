from tableau_sandbox.jobs import publish, refresh, update_data
from tableau_sandbox.jobs.kinds import JobKinds

KINDS: JobKinds = {
    publish.KIND: publish.PUBLISH,
    refresh.KIND: refresh.REFRESH,
    update_data.KIND: update_data.UPDATE_DATA,
}
