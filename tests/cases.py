"""Tables of cases, tokens -> labels, one per task; the tests of tasks, constructions, certificates and reports share
them. Written by hand from the papers' definitions, never computed by interp."""

COUNT01 = {
    # What stands before '=' -> the answer (Definition 3.1: '4' if and only if there are more 1s than 0s).
    "": "5", "0": "5", "1": "4", "2": "5", "01": "5", "10": "5", "0101": "5", "011": "4", "101": "4", "110": "4",
    "001": "5", "222": "5", "12": "4", "21222": "4", "02": "5", "2012": "5", "120121": "4", "0" * 100: "5",
    "1" * 100: "4", "01" * 100 + "1": "4", "10" * 100 + "0": "5", "2" * 200 + "1": "4",
    "1" * 200 + "0" * 200 + "2" * 200: "5", "1" * 200 + "0" * 199 + "2" * 200: "4",
}  # fmt: skip

LANGUAGES = {
    # Language -> string -> is it in the language?
    "first": {"1": True, "0": False, "10": True, "01": False, "1" + "0" * 40: True, "0" + "1" * 40: False},
    "parity": {"0": False, "1": True, "0111": True, "0110": False, "1" * 41: True, "1" * 42: False},
    "one": {"0": False, "1": True, "00100": True, "0000": False, "01100": False, "1" * 30: False, "0" * 40 + "1": True},
    "palindrome": {
        "0": True, "01": False, "11": True, "01010": True, "0110": True, "0111": False, "10000111": False,
        "0" * 20 + "1" + "0" * 20: True, "0" * 40: True, "0" * 39 + "1": False, "0" * 20 + "1" + "0" * 19: False,
    },
    "dyck1": {
        "()": True, ")(": False, "(())()": True, "())(": False, "((((((": False, "(((((())))))": False, "(": False,
    },
    "dyck2": {"([])[]": True, "([)]": False, "[[]": False, "([[()]])": True},
}  # fmt: skip
