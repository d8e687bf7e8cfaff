"""What a routed batch of `metro replay --dump` must be, computed from its ids and its placement alone.

Nothing here follows the program: activated replicas are counted from the slots, the least lambda is found by trying all
assignments where they are few, else as a matching of experts to ranks with capacities.
"""
import itertools

FEW_ASSIGNMENTS = 5000


def hosts_of(batch):
    """Expert -> the ranks that hold it, for the active experts."""
    slots_per_rank = len(batch["physical_to_logical"]) // batch["ranks"]
    active = {expert for row in batch["topk_idx"] for expert in row}
    hosts = {expert: set() for expert in active}
    for slot, expert in enumerate(batch["physical_to_logical"]):
        if expert in active:
            hosts[expert].add(slot // slots_per_rank)
    return hosts


def lambda_by_trying(hosts, num_ranks):
    best = len(hosts)
    for assignment in itertools.product(*hosts.values()):
        best = min(best, max(assignment.count(rank) for rank in range(num_ranks)))
    return best


def fits(hosts, num_ranks, capacity):
    """Whether every expert finds a host when no rank takes more than `capacity`: Kuhn's augmenting paths."""
    guests = {rank: [] for rank in range(num_ranks)}

    def place(expert, visited):
        for rank in hosts[expert]:
            if rank in visited:
                continue
            visited.add(rank)
            if len(guests[rank]) < capacity:
                guests[rank].append(expert)
                return True
            for i, guest in enumerate(guests[rank]):
                if place(guest, visited):
                    guests[rank][i] = expert
                    return True
        return False

    return all(place(expert, set()) for expert in hosts)


def least_lambda(batch):
    hosts = hosts_of(batch)
    num_assignments = 1
    for ranks in hosts.values():
        num_assignments *= len(ranks)
    capacity = -(-len(hosts) // batch["ranks"])
    while not fits(hosts, batch["ranks"], capacity):
        capacity += 1
    if num_assignments <= FEW_ASSIGNMENTS and lambda_by_trying(hosts, batch["ranks"]) != capacity:
        raise SystemExit("the two oracles disagree")
    return capacity


def greedy_activated(batch, scarce_first):
    """The policies metro and metro-scarce by their definition: activated experts per rank."""
    hosts = hosts_of(batch)
    activated = [0] * batch["ranks"]
    for expert in sorted(hosts, key=lambda e: (len(hosts[e]) if scarce_first else 0, e)):
        activated[min(hosts[expert], key=lambda rank: (activated[rank], rank))] += 1
    return activated


def activated_of(batch):
    """Distinct slots in use per rank."""
    slots_per_rank = len(batch["physical_to_logical"]) // batch["ranks"]
    used = {slot for row in batch["slot"] for slot in row}
    return [sum(slot // slots_per_rank == rank for slot in used) for rank in range(batch["ranks"])]


def faults(batch):
    """One line per thing that is not as it must be."""
    placement = batch["physical_to_logical"]
    for ids, slots in zip(batch["topk_idx"], batch["slot"]):
        for expert, slot in zip(ids, slots):
            if slot not in range(len(placement)) or placement[slot] != expert:
                yield f"expert {expert} is served by slot {slot}, which does not hold it"
    activated = activated_of(batch)
    if batch["activated"] != activated:
        yield f"activated is {batch['activated']}, counted {activated}"
    if batch["lambda"] != max(activated):
        yield f"lambda is {batch['lambda']}, counted {max(activated)}"
    optimum = least_lambda(batch)
    if batch["optimum"] != optimum:
        yield f"optimum is {batch['optimum']}, found {optimum}"
    if batch["policy"] == "exact" and max(activated) != optimum:
        yield f"exact has lambda {max(activated)}, the least is {optimum}"
    if batch["policy"] in ("metro", "metro-scarce"):
        greedy = greedy_activated(batch, batch["policy"] == "metro-scarce")
        if activated != greedy:
            yield f"{batch['policy']} activated {activated}, by its definition {greedy}"
