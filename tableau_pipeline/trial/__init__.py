"""Try out a site with throwaway data sources, to learn what Tableau does not document.

`facts` lists the questions. `requests` asks the site by single requests, and `rehearsal` by whole
refreshes. `trial` runs all steps in order, keeps their answers for the next start, and cleans up.
"""
