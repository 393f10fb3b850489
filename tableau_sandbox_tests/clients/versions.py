"""The releases of other people's clients; all of them run on Python 3.11."""

TSC_OLDEST = "tableauserverclient==0.17.0"
TSC_NEWEST = "tableauserverclient==0.42"
TSC_BETWEEN = tuple(f"tableauserverclient=={version}" for version in ("0.25", "0.33", "0.40"))
TABLEAU_API_LIB = "tableau-api-lib==0.1.50"
TABLEAU_UTILITIES = "tableau-utilities==2.2.15"
TABCMD = "tabcmd==2.0.21"
DAGSTER = ("dagster==1.13.27", "dagster-tableau==0.29.27")
AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-tableau==5.7.1")
