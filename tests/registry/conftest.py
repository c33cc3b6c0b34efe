"""A server with models, and a proxy before it."""

import pytest


@pytest.fixture(scope="module")
def site(empty_store, tmp_path_factory):
    from tests.registry.trials import fault_site  # noqa: PLC0415  # other tests need none of it

    with fault_site(empty_store, tmp_path_factory.mktemp("site")) as found:
        yield found
