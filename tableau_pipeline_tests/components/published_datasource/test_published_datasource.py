import dagster as dg
import pytest
import yaml

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline_tests.components.support.declarations import STAR, declared


def test_two_assets_of_one_step():
    """Prevents: a plan and the payload built for it in two steps, between which either is stale."""
    datasource = declared()
    assets = refresh_assets(datasource, datasource.trigger)
    assert not assets.can_subset
    published, extract = dg.AssetKey("shop_orders"), dg.AssetKey("shop_orders_extract")
    assert assets.keys == {published, extract}
    assert assets.asset_deps[published] == {extract}
    assert assets.asset_deps[extract] == {
        dg.AssetKey(["orders"]),
        dg.AssetKey(["crm", "customers"]),
    }


class Ours(PublishedDatasource):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.merge_attributes(owners=["team:sales"], tags={"tier": "gold"})


class Renamed(PublishedDatasource):
    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.replace_attributes(key=spec.key.with_prefix("tableau"))


def test_a_subclass_says_more_of_its_assets():
    """Prevents: owners and tags that no project can give, or a key that no refresh finds again."""
    context = dg.ComponentTree.for_test().load_context
    made = Ours.from_attributes_dict(attributes=STAR).build_defs(context)
    (assets,) = (each for each in made.assets or () if isinstance(each, dg.AssetsDefinition))
    specs = {each.key.to_user_string(): each for each in assets.specs}
    for key in ("shop_orders", "shop_orders_extract"):
        assert (specs[key].owners, specs[key].tags["tier"]) == (["team:sales"], "gold")
    renamed = Renamed.from_attributes_dict(attributes=STAR)
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="key"):
        renamed.build_defs(context)


def test_bare_on_is_a_key():
    """Prevents: YAML 1.1, which reads a bare `on` as true, making relationships unwritable."""
    text = yaml.safe_dump(STAR).replace("'on':", "on:").replace('"on":', "on:")
    attributes = yaml.safe_load(text)
    assert True in attributes["relationships"][0]
    datasource = PublishedDatasource.from_attributes_dict(attributes=attributes)
    assert datasource.relationships[0].on == (("customer", "id"),)


def test_models_of_other_locations_need_no_stub():
    """Prevents: a data source over another location's models that does not load."""
    datasource = declared()
    definitions = dg.Definitions(
        assets=[refresh_assets(datasource, None)],
        resources={name: object() for name in ("snapshots", "hyper", "tableau")},
    )
    dg.Definitions.validate_loadable(definitions)
