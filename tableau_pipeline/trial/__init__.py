"""Try out a site with throwaway data sources: what does it do where Tableau's documents are silent?

`facts` lists the questions, `requests` asks the site, `rehearsal` lets refreshes run, and `trial`
runs all steps in order, keeps their answers for the next start, and cleans up.
"""
