"""Alpha spending: what each scheduled look at one model may spend, so that looking often does not make a finding."""

import math

from canaryjax.errors import UserError


def look_alpha(look: int, alpha: float) -> float:
    """Level of the tests at the t-th look, 6 alpha / (pi^2 t^2); over endlessly many looks they sum to alpha.

    Args:
      look: t, from 1.
      alpha: False-positive rate over all looks together.

    Raises:
      UserError: A look before the first.

    >>> round(look_alpha(1, 0.05), 5), round(look_alpha(2, 0.05), 5)
    (0.0304, 0.0076)
    """
    if look < 1:
        raise UserError(f"expected a look from 1, found {look}; count this run among the looks at the model")
    return 6 * alpha / (math.pi * look) ** 2


def spent_before(look: int, alpha: float) -> float:
    """What the looks before this one spent together.

    Args, raises: As `look_alpha`.

    >>> spent_before(1, 0.05), round(spent_before(3, 0.05), 5)
    (0.0, 0.038)
    """
    if look < 1:
        look_alpha(look, alpha)
    return math.fsum(look_alpha(earlier, alpha) for earlier in range(1, look))
