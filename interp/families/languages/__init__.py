"""Formal languages: FIRST, PARITY, ONE, PALINDROME, Dyck (Chiang and Cholak 2022; Nowak et al. 2022)."""

from interp.families import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "Language": "tasks.language",
        "Dyck1": "tasks.dyck",
        "Dyck2": "tasks.dyck",
        "Palindrome": "tasks.palindrome",
        "First": "tasks.regular",
        "One": "tasks.regular",
        "Parity": "tasks.regular",
        "Brackets": "tasks.brackets",
    },
)
