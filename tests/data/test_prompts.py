import difflib

from canaryjax.data.prompts import ANSWER_PREFIX, answer_text, prompt_parts, render_prompt

# BC-26 and BC-27, typed from the paper's Appendix C.1 and not from the code: a changed word or line break shows.
WITH_DOCUMENT = """You are a question answering assistant.

Answer the question ONLY using the provided document.

If the answer cannot be found in the document, say:
FINAL: Not found

Keep the answer concise. Do not provide explanation.

Format your response exactly as:

FINAL: <short answer>

Document:
Rome {is} far.

Question:
Where?
"""
WITHOUT_DOCUMENT = """You are a question answering assistant.

Answer the question as accurately as possible.

If the answer is unknown, say:
FINAL: Not found

Keep the answer concise. Do not provide explanation.

Format your response exactly as:

FINAL: <short answer>

Question:
Where?
"""


def test_document_template_is_verbatim():
    # Braces in a document would break a template filled by str.format.
    assert render_prompt("Rome {is} far.", "Where?") == WITH_DOCUMENT


def test_template_without_document_is_verbatim():
    assert render_prompt(None, "Where?") == WITHOUT_DOCUMENT


def test_templates_differ_only_in_the_document():
    """BC-28."""
    lines = difflib.ndiff(WITHOUT_DOCUMENT.splitlines(), render_prompt("Rome.", "Where?").splitlines())
    changed = [line for line in lines if line[0] in "+-"]
    assert changed == [
        "- Answer the question as accurately as possible.",
        "+ Answer the question ONLY using the provided document.",
        "- If the answer is unknown, say:",
        "+ If the answer cannot be found in the document, say:",
        "+ Document:",
        "+ Rome.",
        "+ ",
    ]


def test_empty_document_is_not_a_missing_one():
    # `if document:` would take the wrong template.
    assert "Document:\n\n\nQuestion:" in render_prompt("", "Where?")


def test_parts_join_to_the_prompt():
    parts = prompt_parts("Rome.", "Where?")
    assert parts.document == "Rome."
    assert parts.before.endswith("Document:\n")
    assert parts.after == "\n\nQuestion:\nWhere?\n"


def test_answer_prefix_has_no_blank():
    assert ANSWER_PREFIX == "FINAL:"
    assert answer_text("blue") == "FINAL: blue"
