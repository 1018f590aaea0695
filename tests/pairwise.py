"""Covering arrays: few cases in which every two values of different parameters meet."""

from itertools import combinations, product


def pairwise(parameters):
    """Cases (name → value), greedily, until every pair of values of two parameters is in one."""
    names = list(parameters)
    left = {
        ((a, i), (b, j))
        for a, b in combinations(names, 2)
        for i, j in product(range(len(parameters[a])), range(len(parameters[b])))
    }
    cases = []
    while left:
        case = dict(min(left))
        for name in names:
            if name not in case:
                case[name] = max(
                    range(len(parameters[name])),
                    key=lambda value, name=name: len(_pairs(case | {name: value}, names) & left),
                )
        left -= _pairs(case, names)
        cases.append({name: parameters[name][case[name]] for name in names})
    return cases


def _pairs(case, names):
    chosen = [(name, case[name]) for name in names if name in case]
    return set(combinations(chosen, 2))
