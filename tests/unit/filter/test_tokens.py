from __future__ import annotations

import pytest

from broker_core.errors import FilterSyntaxError
from broker_core.filter.sql92.tokens import Kind, Lexer, string_value


def texts(source: str) -> list[str]:
    """All tokens of a text, as written."""
    lexer = Lexer(source)
    found = []
    while (token := lexer.take()).kind is not Kind.END:
        found.append(token.text)
    return found


@pytest.mark.parametrize(
    ("source", "tokens"),
    [
        ("a>=1", ["a", ">=", "1"]),
        ("007", ["0", "0", "7"]),
        ("0L", ["0", "L"]),
        ("5L 5l", ["5L", "5l"]),
        ("5and", ["5", "and"]),
        ("0x1F", ["0", "x1F"]),
        ("1.5f", ["1.5", "f"]),
        ("1.5L", ["1.5", "L"]),
        ("1. .5 1.e2 00.5 09e1", ["1.", ".5", "1.e2", "00.5", "09e1"]),
        ("1e 1e+ 1e+5", ["1", "e", "1", "e", "+", "1e+5"]),
        ("1.2.3", ["1.2", ".3"]),
        ("<><=>=<>", ["<>", "<=", ">=", "<>"]),
        ("=>=<", ["=", ">=", "<"]),
        ("$a_1 _ $", ["$a_1", "_", "$"]),
        ("nott NOT not", ["nott", "NOT", "not"]),
        ("'it''s' ''", ["'it''s'", "''"]),
        ("'a\\' 'b\n\u8ba2'", ["'a\\'", "'b\n\u8ba2'"]),
        ("''''", ["''''"]),
        ("a\t\n\r\f b", ["a", "b"]),
        ("a -- rest\nb", ["a", "b"]),
        ("a -- rest\rb", ["a", "b"]),
        ("a --\r\nb", ["a", "b"]),
        ("a -- b", ["a", "-", "-", "b"]),
        ("a - - b", ["a", "-", "-", "b"]),
        ("a /* x\n * / */ b /**/ c /***/", ["a", "b", "c"]),
    ],
)
def test_longest_token_wins(source: str, tokens: list[str]) -> None:
    assert texts(source) == tokens


@pytest.mark.parametrize("word", ["AND", "and", "aNd", "startswith", "IS", "True", "null"])
def test_keyword_is_known_in_any_case_and_is_no_name(word: str) -> None:
    token = Lexer(word).take()

    assert (token.kind, token.word, token.text) == (Kind.KEYWORD, word.upper(), word)


@pytest.mark.parametrize("name", ["LIKE", "now", "ESCAPE", "EXISTS", "ANDY", "_not"])
def test_words_that_only_look_like_keywords_are_names(name: str) -> None:
    assert Lexer(name).take().kind is Kind.NAME


@pytest.mark.parametrize(
    "character",
    [*'!@#%^&*{}[]|\\:;"?~`./', "\v", "\u00a0", "\ufeff", "\u3000", "\u2028", "\u8ba2", "\x00"],
)
def test_character_outside_the_language_is_refused(character: str) -> None:
    with pytest.raises(FilterSyntaxError, match=f"U\\+{ord(character):04X}"):
        texts(f"a {character} b")


@pytest.mark.parametrize("text", ["/*/", "/* x", "/* x *", "'abc", "'abc''", "'a' 'b"])
def test_comment_or_text_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match="not closed"):
        texts(text)


def test_nothing_is_read_beyond_the_token_that_is_asked_for() -> None:
    lexer = Lexer("a } 'never closed")

    assert lexer.take().text == "a"


def test_doubled_quote_stands_for_one() -> None:
    assert string_value(Lexer("'it''s ''''so'''").take()) == "it's ''so'"
