"""Samples, gradients of samples, constraints and errors of ``neurenix.distributions``."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import neurenix as nx
import pytest
from neurenix import distributions as D
from neurenix.distributions import constraints
from neurenix.distributions.distribution import Distribution


def t(*values: float, dtype: str = "float32", grad: bool = False) -> Any:
    return nx.tensor(list(values), dtype=dtype, requires_grad=grad)


COUNT = 20000
#: The distance of an empirical distribution function that one in 1e6 samples exceeds (Kolmogorov).
DISTANCE = math.sqrt(math.log(2 / 1e-6) / 2 / COUNT)
CONTINUOUS = {
    "normal": lambda: D.Normal(1.0, 2.0),
    "cauchy": lambda: D.Cauchy(1.0, 2.0),
    "laplace": lambda: D.Laplace(1.0, 2.0),
    "gumbel": lambda: D.Gumbel(1.0, 2.0),
    "log_normal": lambda: D.LogNormal(0.3, 0.7),
    "half_normal": lambda: D.HalfNormal(2.0),
    "half_cauchy": lambda: D.HalfCauchy(2.0),
    "exponential": lambda: D.Exponential(3.0),
    "uniform": lambda: D.Uniform(-1.0, 3.0),
    "weibull": lambda: D.Weibull(2.0, 1.5),
    "pareto": lambda: D.Pareto(2.0, 1.5),
    "generalized_pareto": lambda: D.GeneralizedPareto(0.5, 2.0, 0.3),
    "kumaraswamy": lambda: D.Kumaraswamy(0.7, 2.5),
    "gamma_small": lambda: D.Gamma(0.1, 2.0),
    "gamma_one": lambda: D.Gamma(1.0, 2.0),
    "gamma_large": lambda: D.Gamma(50.0, 2.0),
    "chi2": lambda: D.Chi2(3.0),
    "inverse_gamma": lambda: D.InverseGamma(2.5, 1.5),
    "continuous_bernoulli": lambda: D.ContinuousBernoulli(0.2),
    "mixture": lambda: D.MixtureSameFamily(D.Categorical(t(1.0, 3.0)), D.Normal(t(-2.0, 1.0), t(0.5, 1.0))),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_have_the_distribution_function(name: str) -> None:
    p = CONTINUOUS[name]()
    reached = sorted(p.cdf(p.sample((COUNT,))).tolist())
    distance = max(max((i + 1) / COUNT - u, u - i / COUNT) for i, u in enumerate(reached))
    assert distance < DISTANCE


#: Those without a distribution function: that of the marginal is summed or integrated from the density.
NUMERIC = {
    "beta": (lambda: D.Beta(2.0, 0.7), 0.0, 1.0),
    "student": (lambda: D.StudentT(5.0, 1.0, 2.0), -200.0, 200.0),
    "fisher": (lambda: D.FisherSnedecor(5.0, 9.0), 1e-9, 400.0),
    "von_mises_flat": (lambda: D.VonMises(0.5, 0.01), -math.pi, math.pi),
    "von_mises": (lambda: D.VonMises(0.5, 2.0), -math.pi, math.pi),
    "von_mises_sharp": (lambda: D.VonMises(0.5, 500.0), -math.pi, math.pi),
    "relaxed_bernoulli": (lambda: D.RelaxedBernoulli(t(0.7), t(0.3)), 0.0, 1.0),
    "logit_relaxed": (lambda: D.relaxed_bernoulli.LogitRelaxedBernoulli(t(0.7), t(0.3)), -60.0, 60.0),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_samples_have_the_density(name: str) -> None:
    make, low, high = NUMERIC[name]
    p = make()
    x = sorted(p.sample((COUNT,)).flatten().tolist())
    # The density at the middles of 200 intervals between samples, with a fine grid inside each.
    cuts = [low] + [x[i] for i in range(99, COUNT - 1, 100)] + [high]
    total, worst = 0.0, 0.0
    for index, (a, b) in enumerate(zip(cuts, cuts[1:])):
        if b > a:
            grid = nx.tensor([a + (b - a) * (k + 0.5) / 64 for k in range(64)], dtype="float64")
            total += float(p.log_prob(grid.to("float32")).exp().to("float64").mean().item()) * (b - a)
        if index < len(cuts) - 2:
            worst = max(worst, abs(total - (100 * index + 100) / COUNT))
    # The first and last intervals may have integrable poles, which the grid misses in part.
    assert worst < DISTANCE + 0.01


DISCRETE = {
    "bernoulli": (lambda: D.Bernoulli(0.3), 2),
    "geometric": (lambda: D.Geometric(0.3), 40),
    "binomial_few": (lambda: D.Binomial(12, t(0.3)), 13),
    "binomial_many": (lambda: D.Binomial(100, t(0.7)), 101),
    "binomial_rare": (lambda: D.Binomial(5000, t(0.001)), 40),
    "binomial_large": (lambda: D.Binomial(100000, t(0.3)), 0),
    "poisson_few": (lambda: D.Poisson(4.0), 40),
    "poisson_ten": (lambda: D.Poisson(10.5), 60),
    "poisson_many": (lambda: D.Poisson(80.0), 200),
    "negative_binomial": (lambda: D.NegativeBinomial(3.5, t(0.6)), 80),
    "categorical": (lambda: D.Categorical(t(0.1, 0.0, 0.6, 0.3)), 4),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_have_their_probabilities(name: str) -> None:
    make, size = DISCRETE[name]
    p = make()
    samples = p.sample((COUNT,)).flatten().to("float64")
    if name != "categorical":
        mean, deviation = float(p.mean.item()), float(p.stddev.item())
        assert abs(samples.mean().item() - mean) < 5 * deviation / math.sqrt(COUNT)
        fourth = float(((samples - mean) ** 4).mean().item())
        spread = math.sqrt((fourth - deviation**4) / COUNT)
        assert abs(((samples - mean) ** 2).mean().item() - deviation**2) < 5 * spread + 1e-12
    counts = nx.bincount(samples.long(), minlength=size).tolist()
    for value in range(size):
        expected = math.exp(float(p.log_prob(nx.tensor(float(value))).sum().item())) if counts[value] or value < 4 else 0.0
        if expected < 1e-6:
            expected = 0.0
        assert abs(counts[value] / COUNT - expected) < 5 * math.sqrt(max(expected, 5 / COUNT) / COUNT), (value, expected)


VECTORS = {
    "dirichlet": lambda: D.Dirichlet(t(0.1, 1.0, 3.0)),
    "multinomial": lambda: D.Multinomial(7, t(0.1, 0.6, 0.3)),
    "one_hot": lambda: D.OneHotCategorical(t(0.1, 0.6, 0.3)),
    "multivariate_normal": lambda: D.MultivariateNormal(t(1.0, -1.0), nx.tensor([[2.0, 0.8], [0.8, 1.0]])),
    "low_rank": lambda: D.LowRankMultivariateNormal(t(1.0, -1.0, 0.0), nx.tensor([[1.0], [0.5], [-1.0]]), t(0.5, 0.2, 1.0)),
    "wishart": lambda: D.Wishart(t(4.5), nx.tensor([[2.0, 0.8], [0.8, 1.0]])),
}


@pytest.mark.parametrize("name", VECTORS)
def test_moments_of_vectors(name: str) -> None:
    p = VECTORS[name]()
    samples = p.sample((COUNT,)).to("float64").reshape(COUNT, -1)
    mean, variance = (each.to("float64").broadcast_to((1, *p.event_shape)).reshape(-1) for each in (p.mean, p.variance))
    mean, variance = mean.reshape(-1, samples.shape[-1])[-1], variance.reshape(-1, samples.shape[-1])[-1]
    assert bool(((samples.mean(0) - mean).abs() < 5 * (variance / COUNT).sqrt()).all())
    fourth = ((samples - mean) ** 4).mean(0)
    measured = ((samples - mean) ** 2).mean(0)
    assert bool(((measured - variance).abs() < 5 * ((fourth - variance**2) / COUNT).sqrt()).all())
    if name in ("multivariate_normal", "low_rank"):
        centred = samples - mean
        measured = centred.T @ centred / COUNT
        size = variance.unsqueeze(-1) * variance.unsqueeze(-2)
        assert bool(((measured - p.covariance_matrix.to("float64")).abs() < 10 * (size / COUNT).sqrt()).all())


def test_correlations_of_lkj() -> None:
    # Each correlation is a beta variable on [-1, 1] with both concentrations eta - 1 + d / 2.
    p = D.LKJCholesky(4, 1.5)
    factors = p.sample((COUNT,))
    correlations = (factors @ factors.mT)[:, [1, 2, 3, 3], [0, 1, 0, 2]].to("float64")
    concentration = 1.5 - 1 + 4 / 2
    variance = 1 / (2 * concentration + 1)
    assert bool((correlations.mean(0).abs() < 5 * math.sqrt(variance / COUNT)).all())
    assert bool(((correlations**2).mean(0) - variance).abs().max() < 5 * variance / math.sqrt(COUNT) * 1.5)


def gradient(make: Callable[..., Distribution], values: list[float], function: Callable[[Any], Any]) -> list[float]:
    """The gradient of the mean of a function of samples."""
    parameters = [nx.tensor(value, dtype="float64", requires_grad=True) for value in values]
    function(make(*parameters).rsample((COUNT,))).mean().backward()
    return [each.grad.item() for each in parameters]


def test_gradients_of_expectations() -> None:
    close = 0.06
    for a in (0.2, 1.0, 7.0):
        # E log x = digamma(a) - log b, E x = a / b.
        got = gradient(D.Gamma, [a, 2.0], lambda x: x.log())
        assert got == pytest.approx([nx.polygamma(1, t(a)).item(), -0.5], rel=close)
        assert gradient(D.Gamma, [a, 2.0], lambda x: x) == pytest.approx([0.5, -a / 4], rel=close)
        # E x = a / (a + b).
        got = gradient(D.Beta, [a, 2.0], lambda x: x)
        assert got == pytest.approx([2 / (a + 2) ** 2, -a / (a + 2) ** 2], rel=close)
    # The variance of Student's t distribution is n / (n - 2): its derivative is -2 / (n - 2)^2.
    assert gradient(D.StudentT, [12.0], lambda x: x * x)[0] == pytest.approx(-0.02, rel=0.3)
    assert gradient(D.Chi2, [3.0], lambda x: x)[0] == pytest.approx(1.0, rel=close)
    concentration = nx.tensor([0.5, 1.0, 2.5], dtype="float64", requires_grad=True)
    D.Dirichlet(concentration).rsample((COUNT,))[..., 0].mean().backward()
    assert concentration.grad.tolist() == pytest.approx([3.5 / 16, -0.5 / 16, -0.5 / 16], rel=0.15)


def test_the_gradient_of_a_gamma_sample_is_that_of_its_quantile() -> None:
    # At a fixed value of the distribution function: -(dF/da) / f.
    a = nx.tensor([0.3, 1.0, 5.0, 40.0], dtype="float64", requires_grad=True)
    x = D.Gamma(a, 1.0).rsample()
    x.sum().backward()
    h, plain, at = 1e-6, a.detach(), x.detach()
    slope = (nx.special.gammainc(plain + h, at) - nx.special.gammainc(plain - h, at)) / (2 * h)
    assert a.grad.tolist() == pytest.approx((-slope / D.Gamma(plain, 1.0).log_prob(at).exp()).tolist(), rel=1e-5)


def test_tiny_concentrations_do_not_underflow_in_ratios() -> None:
    p = D.Dirichlet(nx.full((3,), 1e-4))
    samples = p.sample((500,))
    assert bool(samples.isfinite().all()) and bool(((samples.sum(-1) - 1).abs() < 1e-5).all())
    assert bool((D.Gamma(1e-4, 1.0).sample((500,)) > 0).all())
    a = nx.full((50,), 1e-3, requires_grad=True)
    D.Beta(a, a).rsample().sum().backward()
    assert bool(a.grad.isfinite().all())


def test_samples_of_nan_parameters_are_nan() -> None:
    assert math.isnan(D.Gamma(math.nan, 1.0, validate_args=False).sample().item())
    assert math.isnan(D.Poisson(t(math.nan), validate_args=False).sample().item())


def test_compiled_samples() -> None:
    compiled = nx.compile(lambda a: D.Gamma(a, 1.0).rsample())
    samples = [compiled(nx.full((1000,), 3.0)) for _ in range(3)]
    assert samples[1].tolist() != samples[2].tolist()
    assert abs(samples[2].mean().item() - 3.0) < 5 * math.sqrt(3 / 1000)


def test_the_same_seed_gives_the_same_samples() -> None:
    for name, make in {**CONTINUOUS, **{key: each[0] for key, each in DISCRETE.items()}, **VECTORS}.items():
        values = []
        for _ in range(2):
            nx.manual_seed(3)
            values.append(make().sample((3,)).tolist())
        assert values[0] == values[1], name


# Constraints and their transforms.
REGIONS = {
    "real": constraints.real,
    "positive": constraints.positive,
    "nonnegative": constraints.nonnegative,
    "greater_than": constraints.greater_than(-2.0),
    "less_than": constraints.less_than(3.0),
    "unit_interval": constraints.unit_interval,
    "interval": constraints.interval(-1.0, 4.0),
    "simplex": constraints.simplex,
    "corr_cholesky": constraints.corr_cholesky,
    "real_vector": constraints.real_vector,
    "independent": constraints.independent(constraints.positive, 1),
}


@pytest.mark.parametrize("name", REGIONS)
def test_transforms_reach_the_region(name: str) -> None:
    region = REGIONS[name]
    x = nx.randn(5, 6)
    for registry in (D.biject_to, D.transform_to):
        transform = registry(region)
        y = transform(x)
        assert bool(region.check(y).all()), transform
        if transform.bijective:
            assert nx.allclose(transform.inv(y), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["lower_cholesky", "positive_definite"])
def test_transforms_to_matrices(name: str) -> None:
    region = getattr(constraints, name)
    assert bool(region.check(D.transform_to(region)(nx.randn(4, 3, 3))).all())
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(region)


def test_constraints_refuse() -> None:
    matrix = nx.tensor([[1.0, 2.0], [2.0, 1.0]])
    wrong = [
        (constraints.boolean, t(0.5)),
        (constraints.one_hot, t(1.0, 1.0)),
        (constraints.nonnegative_integer, t(-1.0)),
        (constraints.nonnegative_integer, t(0.5)),
        (constraints.integer_interval(0, 2), t(3.0)),
        (constraints.real, t(math.nan)),
        (constraints.half_open_interval(0.0, 1.0), t(1.0)),
        (constraints.simplex, t(0.5, 0.4)),
        (constraints.multinomial(3), t(2.0, 2.0)),
        (constraints.lower_triangular, matrix),
        (constraints.lower_cholesky, -nx.eye(2)),
        (constraints.corr_cholesky, 2 * nx.eye(2)),
        (constraints.square, nx.ones(2, 3)),
        (constraints.symmetric, nx.tensor([[1.0, 2.0], [0.0, 1.0]])),
        (constraints.positive_definite, matrix),
        (constraints.positive_semidefinite, matrix),
        (constraints.cat([constraints.positive, constraints.real]), t(-1.0, 1.0)),
        (constraints.stack([constraints.positive, constraints.real]), t(-1.0, 1.0)),
    ]
    for constraint, value in wrong:
        assert not bool(constraint.check(value).all()), constraint
    assert repr(constraints.interval(0, 1)) == "Interval(lower_bound=0, upper_bound=1)"
    assert constraints.is_dependent(D.Uniform.support) and not constraints.is_dependent(D.Uniform(0.0, 1.0).support)
    with pytest.raises(ValueError, match="dependent"):
        constraints.dependent.check(t(1.0))


def test_cat_and_stack_transforms() -> None:
    x = nx.randn(3, 4)
    parts = [D.ExpTransform(), D.TanhTransform()]
    cat, stack = D.CatTransform(parts, 1, [1, 3]), D.StackTransform(parts * 2, 1)
    y = cat(x)
    assert nx.allclose(y, nx.cat([x[:, :1].exp(), x[:, 1:].tanh()], 1)) and nx.allclose(cat.inv(y), x, atol=1e-5)
    assert nx.allclose(cat.log_abs_det_jacobian(x, y)[:, :1], x[:, :1])
    assert bool(cat.codomain.check(y).all())
    z = stack(x)
    assert nx.allclose(z[:, 2], x[:, 2].exp()) and nx.allclose(stack.inv(z), x, atol=1e-5)
    assert stack.log_abs_det_jacobian(x, z).shape == (3, 4)


def test_composed_and_independent_transforms() -> None:
    composed = D.ComposeTransform([D.AffineTransform(1.0, 2.0), D.IndependentTransform(D.ExpTransform(), 1)])
    x = nx.randn(3, 4)
    y = composed(x)
    assert nx.allclose(composed.inv(y), x, atol=1e-5) and composed.inv.inv is composed
    assert nx.allclose(composed.log_abs_det_jacobian(x, y), (1 + 2 * x + math.log(2)).sum(-1), atol=1e-5)
    copula = D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))
    assert nx.allclose(copula.inv(copula(x)), x, atol=1e-3)


def test_a_squashed_normal() -> None:
    base = D.Normal(nx.zeros(3), nx.ones(3))
    p = D.TransformedDistribution(base, [D.AffineTransform(0.5, 2.0), D.TanhTransform(cache_size=1)])
    x = p.rsample((4,))
    expected = base.log_prob((x.atanh() - 0.5) / 2) - math.log(2) - (1 - x * x).log()
    assert nx.allclose(p.log_prob(x), expected, atol=1e-2)
    # The cache makes the inverse of a rounded tangent exact.
    far = D.TransformedDistribution(D.Normal(20.0, 1.0), D.TanhTransform(cache_size=1))
    assert bool(far.log_prob(far.sample()).isfinite())
    decreasing = D.TransformedDistribution(base, D.AffineTransform(0.0, -2.0))
    assert nx.allclose(decreasing.cdf(t(1.0, 0.0, -1.0)), D.Normal(0.0, 2.0).cdf(t(1.0, 0.0, -1.0)), atol=1e-6)
    assert nx.allclose(decreasing.icdf(t(0.2, 0.5, 0.7)), D.Normal(0.0, 2.0).icdf(t(0.2, 0.5, 0.7)), atol=1e-5)


def test_divergence_is_the_mean_of_the_log_ratio() -> None:
    pairs: list[tuple[Any, Any]] = [
        (D.ContinuousBernoulli(0.3), D.Uniform(0.0, 1.0)),
        (D.Uniform(0.0, 1.0), D.ContinuousBernoulli(0.3)),
        (D.Normal(0.5, 1.0), D.Laplace(0.0, 2.0)),
        (D.Gamma(3.0, 2.0), D.Gumbel(1.0, 1.5)),
        (D.Beta(2.0, 3.0), D.Gamma(2.0, 3.0)),
    ]
    for p, q in pairs:
        x = p.sample((COUNT,))
        ratio = p.log_prob(x) - q.log_prob(x)
        assert abs(ratio.mean().item() - D.kl_divergence(p, q).item()) < 5 * ratio.std().item() / math.sqrt(COUNT)


def test_register_kl() -> None:
    class Mine(D.Normal):
        pass

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0.0

    @D.register_kl(Mine, D.Normal)
    def _(p: Any, q: Any) -> Any:
        return nx.tensor(7.0)

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 7.0

    @D.register_kl(D.Normal, Mine)
    def _(p: Any, q: Any) -> Any:
        return nx.tensor(8.0)

    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        D.kl_divergence(Mine(0.0, 1.0), Mine(0.0, 1.0))
    with pytest.raises(NotImplementedError, match="p type Poisson and q type Normal"):
        D.kl_divergence(D.Poisson(1.0), D.Normal(0.0, 1.0))
    with pytest.raises(TypeError):
        D.register_kl(int, D.Normal)


def test_an_exponential_family_by_its_normalizer() -> None:
    class Mine(D.ExponentialFamily):
        _mean_carrier_measure = 0.0

        def __init__(self, rate: Any) -> None:
            self.rate = rate
            super().__init__(rate.shape)

        @property
        def _natural_params(self) -> Any:
            return (-self.rate,)

        def _log_normalizer(self, x: Any) -> Any:
            return -(-x).log()

    p, q = Mine(t(0.5, 2.0)), Mine(t(1.0, 3.0))
    assert nx.allclose(p.entropy(), D.Exponential(p.rate).entropy())
    assert nx.allclose(D.kl_divergence(p, q), D.kl_divergence(D.Exponential(p.rate), D.Exponential(q.rate)))


def test_subclasses_as_in_pytorch() -> None:
    class Doubled(D.Distribution):
        arg_constraints = {"scale": constraints.positive}
        support = constraints.real
        has_rsample = True

        def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
            self.scale = scale
            super().__init__(scale.shape, validate_args=validate_args)

        def rsample(self, sample_shape: Any = ()) -> Any:
            return 2 * self.scale * nx.randn(self._extended_shape(sample_shape))

        def log_prob(self, value: Any) -> Any:
            if self._validate_args:
                self._validate_sample(value)
            return D.Normal(0.0, 2 * self.scale).log_prob(value)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Doubled, _instance)
            new.scale = self.scale.expand(batch_shape)
            super(Doubled, new).__init__(batch_shape, validate_args=False)
            return new

    p = Doubled(t(1.0, 2.0))
    assert p.expand((4, 2)).sample().shape == (4, 2)
    assert p.sample((3,)).shape == (3, 2) and p.log_prob(nx.zeros(2)).shape == (2,)
    with pytest.raises(ValueError, match="support"):
        p.log_prob(t(math.nan, 0.0))
    with pytest.raises(ValueError, match="scale"):
        Doubled(t(-1.0))


def test_mistakes() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: D.Normal(0.0, -1.0), "Expected parameter scale .* GreaterThan"),
        (lambda: D.Normal(t(math.nan), 1.0), "parameter loc"),
        (lambda: D.Normal("a", 1.0), "number or a tensor"),
        (lambda: D.Uniform(1.0, 0.0), "low >= high"),
        (lambda: D.Bernoulli(), "exactly one of probs, logits"),
        (lambda: D.Bernoulli(probs=0.5, logits=0.0), "exactly one"),
        (lambda: D.Bernoulli(1.5), "probs"),
        (lambda: D.Geometric(0.0), "must be positive"),
        (lambda: D.Categorical(t(-1.0, 2.0)), "probs"),
        (lambda: D.Categorical(nx.tensor(1.0)), "at least one dimension"),
        (lambda: D.MultivariateNormal(t(0.0, 0.0)), "exactly one"),
        (lambda: D.MultivariateNormal(t(0.0, 0.0), nx.tensor([[1.0, 2.0], [2.0, 1.0]])), "covariance_matrix"),
        (lambda: D.Wishart(t(0.5), nx.eye(2)), "df"),
        (lambda: D.LKJCholesky(1), "dim is 1"),
        (lambda: D.Independent(D.Normal(0.0, 1.0), 1), "batch dimensions"),
        (lambda: D.Normal(0.0, 1.0).log_prob(0.0), "expected a tensor"),  # type: ignore[arg-type]
        (lambda: D.Normal(nx.zeros(3), 1.0).log_prob(nx.zeros(2)), "broadcast"),
        (lambda: D.Exponential(1.0).log_prob(t(-1.0)), "support"),
        (lambda: D.Dirichlet(nx.ones(3)).log_prob(nx.ones(2)), "event shape"),
        (lambda: D.MixtureSameFamily(D.Categorical(nx.ones(3)), D.Normal(nx.zeros(2), 1.0)), "3 probabilities"),
        (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), [1]), "Transform"),  # type: ignore[list-item]
        (lambda: D.ExpTransform(cache_size=2), "cache_size"),
    ]
    for function, message in cases:
        with pytest.raises(ValueError, match=message):
            function()
    with pytest.raises(NotImplementedError, match="reparameterized"):
        D.Poisson(1.0).rsample()
    with pytest.raises(NotImplementedError, match="same total_count"):
        D.Binomial(t(1.0, 2.0), t(0.5)).enumerate_support()
    D.Normal(0.0, -1.0, validate_args=False)
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_gradients_after_sampling() -> None:
    # What sampling computes without gradients must not stay as a lazy property.
    logits = nx.tensor([0.3, -0.2], requires_grad=True)
    p = D.Bernoulli(logits=logits)
    p.sample()
    p.probs.sum().backward()
    assert logits.grad is not None and bool((logits.grad > 0).all())


def test_dtypes_and_numbers() -> None:
    assert D.Normal(0, 1).sample().dtype.name == "float32"
    assert D.Normal(nx.zeros(2, dtype="float64"), 1.0).sample().dtype.name == "float64"
    assert D.Bernoulli(nx.full((2,), 0.5, dtype="float64")).sample().dtype.name == "float64"
    assert D.Categorical(nx.ones(3)).sample((2,)).dtype.name == "int64"
    assert D.Normal(nx.zeros(0), 1.0).sample((2,)).shape == (2, 0)


def test_policy_gradient() -> None:
    random.seed(0)
    logits = nx.zeros(4, requires_grad=True)
    d = D.Categorical(logits=logits)
    action = d.sample()
    (-d.log_prob(action)).backward()
    expected = [0.25 - (index == action.item()) for index in range(4)]
    assert logits.grad.tolist() == pytest.approx(expected)
