"""Formal languages: FIRST, PARITY, ONE, PALINDROME, Dyck (Chiang and Cholak 2022; Nowak et al. 2022)."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(
    __name__,
    {
        "tasks.language": "Language",
        "tasks.palindrome": "Palindrome",
        "tasks.regular": "First One Parity",
        "tasks.brackets": "Brackets Dyck1 Dyck2",
    },
)
