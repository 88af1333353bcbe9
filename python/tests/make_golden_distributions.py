"""Writes golden/distributions.json: PyTorch's numbers for ``neurenix.distributions`` and ``neurenix.special``.

Run it with an interpreter that has PyTorch: ``python tests/make_golden_distributions.py``. The tests do not need
PyTorch.
"""

import json
import pathlib
import warnings

import torch
from torch import distributions as D

warnings.filterwarnings("ignore")
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def numbers(value):
    """NaN and infinities have no name in JSON; Python's module writes and reads them all the same."""
    return {"shape": list(value.shape), "data": value.detach().to(torch.float64).flatten().tolist()}


def t(value):
    return torch.tensor(value, dtype=torch.float64)


def positive(*shape):
    return torch.rand(shape) * 4 + 0.3


def unit(*shape):
    return torch.rand(shape) * 0.9 + 0.05


def simplex(*shape):
    return torch.rand(shape).add(0.1).div(torch.rand(shape).add(0.1).sum(-1, True))


def definite(*shape):
    root = torch.randn(*shape, shape[-1])
    return root @ root.mT + torch.eye(shape[-1])


SHAPE = (2, 3)
REAL = {"loc": torch.randn(SHAPE), "scale": positive(3)}
# Class, its parameters, and a function of the distribution that gives values.
CASES = [
    ("Normal", REAL, torch.randn(4, 2, 3) * 3),
    ("Cauchy", REAL, torch.randn(2, 3) * 3),
    ("Laplace", REAL, torch.randn(2, 3) * 3),
    ("Gumbel", REAL, torch.randn(2, 3) * 3),
    ("LogNormal", REAL, positive(2, 3)),
    ("HalfNormal", {"scale": positive(3)}, positive(2, 3)),
    ("HalfCauchy", {"scale": positive(3)}, positive(2, 3)),
    ("Exponential", {"rate": positive(3)}, positive(2, 3)),
    ("Uniform", {"low": -positive(3), "high": positive(2, 1)}, torch.rand(2, 3) * 0.6 - 0.3),
    ("Weibull", {"scale": positive(3), "concentration": positive(2, 1) + 1}, positive(2, 3)),
    ("Pareto", {"scale": unit(3), "alpha": positive(2, 1)}, positive(2, 3) + 1),
    ("GeneralizedPareto", {"loc": t([0.5, -1.0, 0.1]), "scale": positive(3), "concentration": t([0.3, 0.0, -0.2])}, unit(2, 3) + 0.5),
    ("Kumaraswamy", {"concentration1": positive(3), "concentration0": positive(2, 1)}, unit(2, 3)),
    ("Gamma", {"concentration": positive(3), "rate": positive(2, 1)}, positive(2, 3)),
    ("Chi2", {"df": positive(3)}, positive(2, 3)),
    ("InverseGamma", {"concentration": positive(3) + 2, "rate": positive(2, 1)}, positive(2, 3)),
    ("Beta", {"concentration1": positive(3), "concentration0": positive(2, 1)}, unit(2, 3)),
    ("Beta", {"concentration1": t([0.5, 0.9]), "concentration0": t([0.6, 0.2])}, unit(2)),
    ("Dirichlet", {"concentration": positive(2, 3)}, D.Dirichlet(torch.ones(3)).sample((4, 2))),
    ("StudentT", {"df": t([0.5, 1.5, 4.0]), **REAL}, torch.randn(2, 3) * 3),
    ("FisherSnedecor", {"df1": positive(3) + 1, "df2": t([[1.5], [7.0]])}, positive(2, 3)),
    ("VonMises", {"loc": torch.randn(3), "concentration": positive(2, 1) * 4}, torch.randn(2, 3)),
    ("Bernoulli", {"probs": unit(3)}, t([[0.0, 1.0, 1.0]])),
    ("Bernoulli", {"logits": torch.randn(3)}, t([[0.0, 1.0, 1.0]])),
    ("ContinuousBernoulli", {"probs": t([0.1, 0.4995, 0.7])}, unit(2, 3)),
    ("ContinuousBernoulli", {"logits": torch.randn(3)}, unit(2, 3)),
    ("Geometric", {"probs": unit(3)}, t([[0.0, 1.0, 7.0]])),
    ("Geometric", {"logits": torch.randn(3)}, t([[0.0, 1.0, 7.0]])),
    ("Binomial", {"total_count": t([7.0, 7.0, 7.0]), "probs": unit(3)}, t([[0.0, 3.0, 7.0]])),
    ("Binomial", {"total_count": t([7.0, 7.0, 7.0]), "logits": torch.randn(3)}, t([[0.0, 3.0, 7.0]])),
    ("NegativeBinomial", {"total_count": t([2.0, 3.5, 0.5]), "probs": unit(3)}, t([[0.0, 3.0, 7.0]])),
    ("NegativeBinomial", {"total_count": t([2.0, 3.5, 0.5]), "logits": torch.randn(3)}, t([[0.0, 3.0, 7.0]])),
    ("Poisson", {"rate": t([0.5, 4.0, 30.0])}, t([[0.0, 3.0, 27.0]])),
    ("Categorical", {"probs": simplex(2, 4)}, t([[0, 3], [1, 2], [0, 0]])),
    ("Categorical", {"logits": torch.randn(2, 4)}, t([[0, 3], [1, 2], [0, 0]])),
    ("OneHotCategorical", {"probs": simplex(2, 4)}, torch.eye(4)[torch.tensor([0, 2])]),
    ("OneHotCategorical", {"logits": torch.randn(2, 4)}, torch.eye(4)[torch.tensor([0, 2])]),
    ("OneHotCategoricalStraightThrough", {"probs": simplex(2, 4)}, torch.eye(4)[torch.tensor([0, 2])]),
    ("Multinomial", {"total_count": 5, "probs": simplex(2, 3)}, t([[0.0, 2.0, 3.0], [5.0, 0.0, 0.0]])),
    ("Multinomial", {"total_count": 5, "logits": torch.randn(2, 3)}, t([[0.0, 2.0, 3.0], [5.0, 0.0, 0.0]])),
    ("RelaxedBernoulli", {"temperature": t(0.7), "probs": unit(3)}, unit(2, 3)),
    ("RelaxedBernoulli", {"temperature": t(0.7), "logits": torch.randn(3)}, unit(2, 3)),
    ("RelaxedOneHotCategorical", {"temperature": t(0.7), "probs": simplex(2, 3)}, D.Dirichlet(torch.ones(3)).sample((2,))),
    ("RelaxedOneHotCategorical", {"temperature": t(0.7), "logits": torch.randn(2, 3)}, D.Dirichlet(torch.ones(3)).sample((2,))),
    ("MultivariateNormal", {"loc": torch.randn(2, 3), "covariance_matrix": definite(3)}, torch.randn(4, 2, 3)),
    ("MultivariateNormal", {"loc": torch.randn(3), "precision_matrix": definite(2, 3)}, torch.randn(4, 2, 3)),
    ("MultivariateNormal", {"loc": torch.randn(3), "scale_tril": torch.linalg.cholesky(definite(2, 3))}, torch.randn(2, 3)),
    ("LowRankMultivariateNormal", {"loc": torch.randn(4), "cov_factor": torch.randn(2, 4, 2), "cov_diag": positive(4)}, torch.randn(3, 2, 4)),
    ("LogisticNormal", {"loc": torch.randn(2, 2), "scale": positive(2)}, D.Dirichlet(torch.ones(3)).sample((2,))),
    ("Wishart", {"df": t([4.0, 5.5]), "covariance_matrix": definite(3)}, definite(2, 3)),
    ("Wishart", {"df": t([4.0, 5.5]), "scale_tril": torch.linalg.cholesky(definite(3))}, definite(2, 3)),
    ("LKJCholesky", {"dim": 3, "concentration": t([0.5, 1.0, 3.0])}, D.LKJCholesky(3).sample((3,))),
]
PROPERTIES = ("mean", "mode", "variance", "stddev")


def attempt(function):
    try:
        return numbers(function())
    except (NotImplementedError, AttributeError, RuntimeError):
        return None


def case(name, parameters, value):
    tensors = {key: each.clone().requires_grad_() for key, each in parameters.items() if isinstance(each, torch.Tensor)}
    p = getattr(D, name)(**{**parameters, **tensors})
    log_prob = p.log_prob(value)
    log_prob.sum().backward()
    plain = getattr(D, name)(**parameters)
    probability = torch.linspace(0.05, 0.95, 7).reshape(-1, *(1,) * len(p.batch_shape))
    return {
        "name": name,
        "parameters": {key: numbers(each) if isinstance(each, torch.Tensor) else each for key, each in parameters.items()},
        "value": numbers(value),
        "batch_shape": list(p.batch_shape),
        "event_shape": list(p.event_shape),
        "has_rsample": p.has_rsample,
        "log_prob": numbers(log_prob),
        "gradients": {key: numbers(each.grad) for key, each in tensors.items() if each.grad is not None},
        "entropy": attempt(plain.entropy),
        "perplexity": attempt(plain.perplexity),
        "cdf": attempt(lambda: plain.cdf(value)),
        "icdf": attempt(lambda: plain.icdf(probability)),
        "support": attempt(lambda: plain.enumerate_support()),
        **{each: attempt(lambda each=each: getattr(plain, each)) for each in PROPERTIES},
    }


# Two members of each family for the divergences.
PAIRS = {
    "Bernoulli": [{"probs": t([0.2, 0.9])}, {"probs": t([0.5, 0.6])}],
    "Beta": [{"concentration1": t([0.7, 3.0]), "concentration0": t([2.0, 1.5])}, {"concentration1": t([1.5, 2.0]), "concentration0": t([4.0, 0.5])}],
    "Binomial": [{"total_count": t([3.0, 5.0]), "probs": t([0.2, 0.9])}, {"total_count": t([3.0, 4.0]), "probs": t([0.5, 0.6])}],
    "Categorical": [{"probs": simplex(2, 3)}, {"probs": simplex(2, 3)}],
    "Cauchy": [{"loc": t([0.2, -1.0]), "scale": t([0.5, 2.0])}, {"loc": t([0.0, 3.0]), "scale": t([1.5, 1.0])}],
    "ContinuousBernoulli": [{"probs": t([0.2, 0.9])}, {"probs": t([0.4, 0.6])}],
    "Dirichlet": [{"concentration": positive(2, 3)}, {"concentration": positive(2, 3)}],
    "Exponential": [{"rate": t([0.5, 2.0])}, {"rate": t([1.5, 1.0])}],
    "Gamma": [{"concentration": t([0.7, 3.0]), "rate": t([2.0, 1.5])}, {"concentration": t([1.5, 2.0]), "rate": t([4.0, 0.5])}],
    "Geometric": [{"probs": t([0.2, 0.9])}, {"probs": t([0.5, 0.6])}],
    "Gumbel": [{"loc": t([0.2, -1.0]), "scale": t([0.5, 2.0])}, {"loc": t([0.0, 3.0]), "scale": t([1.5, 1.0])}],
    "HalfNormal": [{"scale": t([0.5, 2.0])}, {"scale": t([1.5, 1.0])}],
    "Laplace": [{"loc": t([0.2, -1.0]), "scale": t([0.5, 2.0])}, {"loc": t([0.0, 3.0]), "scale": t([1.5, 1.0])}],
    "LogNormal": [{"loc": t([0.2, -1.0]), "scale": t([0.5, 2.0])}, {"loc": t([0.0, 3.0]), "scale": t([1.5, 1.0])}],
    "LowRankMultivariateNormal": [
        {"loc": torch.randn(2, 3), "cov_factor": torch.randn(2, 3, 1), "cov_diag": positive(2, 3)},
        {"loc": torch.randn(2, 3), "cov_factor": torch.randn(2, 3, 1), "cov_diag": positive(2, 3)},
    ],
    "MultivariateNormal": [
        {"loc": torch.randn(2, 3), "covariance_matrix": definite(2, 3)},
        {"loc": torch.randn(2, 3), "covariance_matrix": definite(2, 3)},
    ],
    "Normal": [{"loc": t([0.2, -1.0]), "scale": t([0.5, 2.0])}, {"loc": t([0.0, 3.0]), "scale": t([1.5, 1.0])}],
    "OneHotCategorical": [{"probs": simplex(2, 3)}, {"probs": simplex(2, 3)}],
    "Pareto": [{"scale": t([0.5, 2.0]), "alpha": t([2.5, 4.0])}, {"scale": t([0.25, 2.5]), "alpha": t([1.0, 2.0])}],
    "Poisson": [{"rate": t([0.5, 2.0])}, {"rate": t([1.5, 1.0])}],
    "Uniform": [{"low": t([0.3, -0.5]), "high": t([0.7, 0.9])}, {"low": t([-0.1, -1.0]), "high": t([1.5, 1.7])}],
}


def divergences():
    rows = []
    for p_name, (p_parameters, _) in PAIRS.items():
        for q_name, (_, q_parameters) in PAIRS.items():
            p = getattr(D, p_name)(**p_parameters, validate_args=False)
            q = getattr(D, q_name)(**q_parameters, validate_args=False)
            try:
                value = numbers(D.kl_divergence(p, q).expand(2))
            except NotImplementedError:
                value = None
            rows.append({"p": p_name, "q": q_name, "value": value})
    return rows


TRANSFORMS = [
    ("AbsTransform", {}, torch.randn(2, 3)),
    ("AffineTransform", {"loc": 0.5, "scale": -2.0}, torch.randn(2, 3)),
    ("AffineTransform", {"loc": 0.5, "scale": 3.0, "event_dim": 1}, torch.randn(2, 3)),
    ("CorrCholeskyTransform", {}, torch.randn(2, 6)),
    ("ExpTransform", {}, torch.randn(2, 3)),
    ("LowerCholeskyTransform", {}, torch.randn(2, 3, 3)),
    ("PositiveDefiniteTransform", {}, torch.randn(2, 3, 3)),
    ("PowerTransform", {"exponent": -1.5}, positive(2, 3)),
    ("ReshapeTransform", {"in_shape": [2, 3], "out_shape": [6]}, torch.randn(4, 2, 3)),
    ("SigmoidTransform", {}, torch.randn(2, 3)),
    ("SoftmaxTransform", {}, torch.randn(2, 3)),
    ("SoftplusTransform", {}, torch.randn(2, 3)),
    ("StickBreakingTransform", {}, torch.randn(2, 3)),
    ("TanhTransform", {}, torch.randn(2, 3)),
]


def transform(name, arguments, x):
    this = getattr(D.transforms, name)(**arguments)
    y = this(x)
    return {
        "name": name,
        "arguments": arguments,
        "x": numbers(x),
        "y": numbers(y),
        "back": attempt(lambda: this.inv(y)),
        "slope": attempt(lambda: this.log_abs_det_jacobian(x, y)),
        "dims": [this.domain.event_dim, this.codomain.event_dim],
        "bijective": this.bijective,
    }


def main():
    gamma_a = t([0.1, 0.5, 1.0, 3.0, 10.0, 100.0]).repeat_interleave(4)
    gamma_x = torch._standard_gamma(gamma_a)
    content = {
        "distributions": [case(*each) for each in CASES],
        "pairs": {name: [{key: numbers(x) for key, x in each.items()} for each in both] for name, both in PAIRS.items()},
        "divergences": divergences(),
        "transforms": [transform(*each) for each in TRANSFORMS],
        "gamma": {"a": numbers(gamma_a), "x": numbers(gamma_x), "slope": numbers(torch._standard_gamma_grad(gamma_a, gamma_x))},
    }
    (pathlib.Path(__file__).parent / "golden" / "distributions.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
