"""Which option a model's answer names."""

import pytest

from framenest.evaluation.benchmarks import chosen_letter

OPTIONS = ["A red car", "A blue bicycle", "Nobody", "Two dogs, then a cat"]


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(C)", "C"),
        ("C.", "C"),
        ("**D**", "D"),
        ("B. A blue bicycle", "B"),
        ("B) A blue bicycle", "B"),
        ("D\nbecause two dogs come first", "D"),
        ("Answer: B", "B"),
        ("The correct answer is **B**.", "B"),
        ("The best option is (D) since A is wrong.", "D"),
        ("Options A and C are wrong. The answer is B.", "B"),
        ("First I thought the answer is A, but the answer is C", "C"),
        (r"So the result is \boxed{C}", "C"),
        ("It is neither A nor C.\n\nB", "B"),
        ("The frames show a blue bicycle.", "B"),
        ("two dogs then a cat", "D"),
        ("A red car is seen at the end.", "A"),
        ("I would pick C here", "C"),
        ("The answer is A because it is shown.", "A"),
        ("A because a red car and a blue bicycle pass", "A"),
        ("The answer is A man", None),
        ("A man enters, so I pick C", "C"),
        ("A", "A"),
        ("", None),
        ("I cannot tell", None),
        ("A or B", None),
        ("A, B", None),
        ("B, C and D", None),
        ("B, because it is blue", "B"),
        ("E", None),
        ("a red car and a blue bicycle", None),
    ],
)
def test_the_letter_of_an_answer(text, letter):
    assert chosen_letter(text, OPTIONS) == letter


def test_eight_options():
    options = [f"thing {i}" for i in range(1, 9)]
    assert chosen_letter("H", options) == "H"
    assert chosen_letter("Final Answer: G", options) == "G"
    assert chosen_letter("thing 7", options) == "G"
    assert chosen_letter("I", options) is None
