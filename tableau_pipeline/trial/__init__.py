"""Try out a site with throwaway data sources: what does it do where Tableau's documents are silent?

`facts` lists the questions, `requests` asks the site, `rehearsal` lets refreshes run, and `trial`
puts all of it in order, keeps what it found for the next start, and cleans up.
"""
