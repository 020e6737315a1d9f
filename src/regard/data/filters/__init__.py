"""Filters of sentence pairs: what a corpus should not contain.

A recipe lists filters in the order in which they run. A filter that needs to know what is typical learns it from the first
pairs, so all filters work on a stream:

    filters: [{kind: length, max: 200}, identity, duplicates]
"""

from regard.data.filters.duplicates import Duplicates, NearDuplicates
from regard.data.filters.filter_spec import FILTERS, FilterSpec, Pair, PairFilter
from regard.data.filters.language_id import Language
from regard.data.filters.length import Identity, Length, Ratio
from regard.data.filters.pipeline import STANDARD, FilterList, FilterPipeline, preview_filters
from regard.data.filters.unicode_script import Script

__all__ = [
    "FILTERS",
    "STANDARD",
    "Duplicates",
    "FilterList",
    "FilterPipeline",
    "FilterSpec",
    "Identity",
    "Language",
    "Length",
    "NearDuplicates",
    "Pair",
    "PairFilter",
    "Ratio",
    "Script",
    "preview_filters",
]
