"""The examples of the page about the Claude Agent SDK."""


def test_the_page(run_page):
    assert run_page("docs/how-to/frameworks/claude-agent-sdk.md") == 4
