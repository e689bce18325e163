import pytest

import interp


def test_rooms_list_their_files_and_import_them_on_use():
    assert {"patching", "ablation", "runs"} <= {*dir(interp.measures)}
    assert interp.measures.patching.activation_patching is interp.activation_patching


def test_unknown_names_of_a_room_are_named():
    with pytest.raises(AttributeError, match=r"module 'interp\.models' has no attribute 'nothing'"):
        interp.models.nothing  # noqa: B018
