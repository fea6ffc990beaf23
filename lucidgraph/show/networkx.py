"""A graph for networkx. Imported only when asked for."""

from __future__ import annotations

import networkx

from ..ir import Graph
from .labels import items

__all__ = ["to_networkx"]


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """A ``MultiDiGraph`` from operands to users, its nodes called and ordered as in the printed graph.

    Node attributes: ``op`` (name), ``type`` (text), ``types`` (shape and dtype of each result), ``attrs`` (a dict),
    ``source``, ``scope``, ``origin``, ``policy``, ``lint`` (text, empty where there is none), ``input`` (its position,
    or None), ``label`` (an input's name), ``outputs`` (the positions it returns). An edge's ``position`` is that of the
    operand. The graph's attributes: ``form``, ``inputs``, ``outputs`` (lists of node names).

    >>> import lucidgraph as lg, numpy as np
    >>> g = to_networkx(lg.trace(lambda x: x - x, np.ones(2, np.float32)))
    >>> g.nodes["%1"]["op"], sorted(g.edges(data="position"))
    ('subtract', [('%0', '%1', 0), ('%0', '%1', 1)])
    """
    shown = items(graph)
    drawn = networkx.MultiDiGraph(form=graph.form)
    labels = dict(zip(graph.inputs, graph.input_names, strict=True))
    for item in shown:
        node = item.node
        drawn.add_node(
            item.name,
            op=node.name,
            type=item.type,
            types=node.types,
            attrs=dict(node.attrs),
            source=item.where,
            scope=node.scope,
            origin=item.why,
            policy=node.policy.name if node.policy else "",
            lint=node.lint,
            input=item.position if node in labels else None,
            label=labels.get(node, ""),
            outputs=item.results,
        )
    for item in shown:
        for position, operand in enumerate(item.operands):
            drawn.add_edge(shown[operand].name, item.name, position=position)
    names = {item.node: item.name for item in shown}
    drawn.graph["inputs"] = [names[node] for node in graph.inputs]
    drawn.graph["outputs"] = [names[node] for node in graph.outputs]
    return drawn
