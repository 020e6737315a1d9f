"""Nothing that came in as text leaves as markup."""

import html

from hypothesis import given, settings
from hypothesis import strategies as st

from regard.report.markup import FORBIDDEN, Html, escape, join, tag


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "1 < 2 & 3", tag("b", "really")) == "<p>1 &lt; 2 &amp; 3<b>really</b></p>"
    assert join(["<", Html("<br>")]) == "&lt;<br>"


def test_attributes_are_named_and_escaped():
    assert tag("a", class_="x", stroke_width=1.5, id=None, title='"><script>') == (
        '<a class="x" stroke-width="1.5" title="&quot;&gt;&lt;script&gt;"></a>'
    )
    assert tag("br") == "<br>"


def test_markup_joined_to_text_is_text_again():
    assert escape(Html("<b>") + "x") == "&lt;b&gt;x"


def test_what_no_document_may_hold_is_replaced():
    shown = escape("a\x00\x1b\ud800\uffffb\n\tc")
    assert shown == "a\ufffd\ufffd\ufffd\ufffdb\n\tc"
    assert shown.encode()


@settings(deadline=None)
@given(st.text())
def test_escaped_text_reads_as_it_was(text):
    shown = escape(text)
    assert not set("<>\"'") & set(shown)
    assert html.unescape(shown) == FORBIDDEN.sub("\ufffd", text)
