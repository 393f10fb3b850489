"""Assets that send action batches of your own. Copy them below `tableau_pipeline/defs/`."""

from uuid import uuid4

import dagster as dg
import tableauserverclient as TSC
from tableauhyperapi import CreateMode

from tableau_pipeline.actions.batch import Batch, Delete, Upsert, source, target
from tableau_pipeline.components import send_batch
from tableau_pipeline.resources import HyperResource, TableauServerResource, data_dir


class Forget(dg.Config):
    """The customer who leaves."""

    customer_id: int


@dg.asset(pool="tableau")
def forget_a_customer(
    context: dg.AssetExecutionContext,
    config: Forget,
    tableau: TableauServerResource,
) -> None:
    """Take a customer off the dashboards at once; the model drops the customer separately."""
    leaving = Delete(target="Extract", where=target("customer_id") == config.customer_id)
    send_batch(context, "loyal_customers", batch=Batch([leaving]), tableau=tableau)


@dg.asset(pool="tableau")
def counted_stock(tableau: TableauServerResource, hyper: HyperResource) -> None:
    """Merge last night's count into "Stock, EU", a data source that another team publishes."""
    payload = data_dir() / "counted_stock.hyper"
    with hyper.connect(payload, CreateMode.CREATE_AND_REPLACE) as connection:
        connection.execute_command('CREATE TABLE counted ("article" BIGINT, "pieces" INTEGER)')
        connection.execute_command("INSERT INTO counted VALUES (17, 3), (99, 8)")
    same = target("article") == source("article")
    batch = Batch([Upsert(target="Extract", source="counted", where=same)])
    with tableau.session() as site:
        (stock,) = (each for each in TSC.Pager(site.tsc.datasources) if each.name == "Stock, EU")
        site.tsc.datasources.populate_connections(stock)
        job_id = site.update(
            str(stock.id),
            batch=batch.json(),
            upload=site.upload(payload),
            request_id=str(uuid4()),
            connection=str(stock.connections[0].id),
        )
        if job_id is None:
            raise dg.Failure("The server does not say which job runs the update.")
        site.tsc.jobs.wait_for_job(job_id)
