"""A data source with an extract of a text file; the server need not have the text file."""

import zipfile
from io import BytesIO

import pytest

from tableau_sandbox_tests.contract.files import rows_file
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

# The form in which Tableau's products from 2020.2 to 2023.3 save a data source.
_TDS = """<?xml version='1.0' encoding='utf-8' ?>
<datasource formatted-name='federated.0verify' inline='true' version='18.1'
 xmlns:user='http://www.tableausoftware.com/xml/user'>
  <document-format-change-manifest>
    <_.fcp.SchemaViewerObjectModel.true...SchemaViewerObjectModel />
  </document-format-change-manifest>
  <connection class='federated'>
    <named-connections>
      <named-connection caption='rows' name='textscan.0verify'>
        <connection class='textscan' directory='.' filename='rows.csv' password='' server='' />
      </named-connection>
    </named-connections>
    <relation connection='textscan.0verify' name='rows.csv' table='[rows#csv]' type='table'>
      <columns character-set='UTF-8' header='yes' locale='en_US' separator=','>
        <column datatype='integer' name='id' ordinal='0' />
        <column datatype='string' name='name' ordinal='1' />
      </columns>
    </relation>
  </connection>
  <aliases enabled='yes' />
  <column caption='Name' datatype='string' name='[name]' role='dimension' type='nominal' />
  <_.fcp.SchemaViewerObjectModel.false...folder name='Seen' role='dimensions'>
    <folder-item name='[name]' type='field' />
  </_.fcp.SchemaViewerObjectModel.false...folder>
  <_.fcp.SchemaViewerObjectModel.true...folders-common>
    <folder name='Seen'>
      <folder-item name='[name]' type='field' />
    </folder>
  </_.fcp.SchemaViewerObjectModel.true...folders-common>
  <extract count='-1' enabled='true' units='records'>
    <connection access_mode='readonly' authentication='auth-none' author-locale='en_US'
     class='hyper' dbname='Data/Seen/rows.hyper' default-settings='yes' schema='Extract'
     sslmode='' tablename='Extract' username='tableau_internal_user'>
      <relation name='Extract' table='[Extract].[Extract]' type='table' />
    </connection>
  </extract>
  <layout dim-ordering='alphabetic' measure-ordering='alphabetic' show-structure='true' />
</datasource>
"""


def extract(workspace: Workspace) -> Published:
    """Publish the extract, or skip the fact if the server refuses such packages."""
    package = BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("rows.tds", _TDS)
        archive.writestr("Data/Seen/rows.hyper", rows_file(*ROWS))
    name = workspace.new_name()
    answer = workspace.publish(name, package.getvalue(), suffix="tdsx")
    if answer.status == 400:
        pytest.skip("the server does not take the extract of a text file")
    return Published(answer.succeeds(201)["datasource@id"], name)
