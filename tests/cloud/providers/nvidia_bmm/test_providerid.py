"""Provider IDs: every form that was ever written is read, anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cloud.providers.nvidia_bmm.providerid import ProviderID, parse
from bedplate.core.errors import Invalid

ID = "497f6eca-6276-4993-bfeb-53cbbbba6f08"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"nvidia-bmm://org/tenant/site/{ID}", ProviderID("org", "tenant", "site", ID)),
        (f"nvidia-bmm://org/tenant/site/{ID.upper()}", ProviderID("org", "tenant", "site", ID)),
        (f"nvidia-bmm://org/site/{ID}", ProviderID("org", "", "site", ID)),
        (f"nvidia-carbide://org/tenant/site/{ID}", ProviderID("org", "tenant", "site", ID)),
        (f"nvidia-bmm://my org/a name/site:1/{ID}", ProviderID("my org", "a name", "site:1", ID)),
    ],
)
def test_every_known_form_is_read(text: str, expected: ProviderID) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "invalid-format",
        "nvidia-bmm://org/site",
        "nvidia-bmm://org/site/not-a-uuid",
        f"nvidia-bmm://a/b/c/d/{ID}",
        f"nvidia-bmm:///site/{ID}",
        f"nvidia-bmm://org//{ID}",
        f"nvidia-bmm://org//site/{ID}",
        f"nvidia-bmm://org/tenant//{ID}",
        "nvidia-bmm://org/tenant/site/",
        f"nvidia-bmm://org/tenant/site/{ID}/",
        f"nvidia-bmm://org/tenant/site/{ID} ",
        f"nvidia-bmm://org/tenant/site/{{{ID}}}",
        f"nvidia-bmm://org/tenant/site/{ID.replace('-', '')}",
        f"NVIDIA-BMM://org/tenant/site/{ID}",
        f"oxide://{ID}",
        f"aws:///zone/{ID}",
        ID,
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


_segment = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(org=_segment, tenant=_segment, site=_segment, instance=st.uuids())
def test_what_is_written_is_read_back(org: str, tenant: str, site: str, instance: object) -> None:
    written = ProviderID(org, tenant, site, str(instance))
    assert parse(str(written)) == written and str(written).startswith("nvidia-bmm://")


@given(st.text(max_size=100))
def test_no_text_breaks_the_reader(text: str) -> None:
    for candidate in (text, f"nvidia-bmm://{text}"):
        try:
            parse(candidate)
        except Invalid:
            continue
