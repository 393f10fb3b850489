"""Publish a CSV file with pandas, pantab and Tableau's own client, as most people would."""

import os
import sys

import pandas as pd
import pantab
import tableauserverclient as tsc

path, name = sys.argv[1:]
frame = pd.read_csv(path, parse_dates=["crawled", "created", "seen"])
pantab.frame_to_hyper(frame, f"{path}.hyper", table="Extract")
token = tsc.PersonalAccessTokenAuth(
    os.environ["TABLEAU_TOKEN_NAME"], os.environ["TABLEAU_TOKEN_VALUE"]
)
server = tsc.Server(os.environ["TABLEAU_SERVER_URL"], use_server_version=True)
with server.auth.sign_in(token):
    project = next(each for each in tsc.Pager(server.projects) if each.name == "Default")
    item = tsc.DatasourceItem(project.id, name=name)
    server.datasources.publish(item, f"{path}.hyper", tsc.Server.PublishMode.Overwrite)
