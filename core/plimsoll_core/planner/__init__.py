"""Plans moves of replicas and of preferred leaderships; executes nothing.

    request = Request(brokers=…, topics=…, partitions=…, goal=AddBrokers(brokers=(3, 4)))
    answer = plan(request)                      # plan.plan: a Plan, or a Refusal that says why not
    plan_hash(answer)                           # outcome.plan_hash: names the approved plan
    what_if(request.partitions, (0, 1, 2))      # draft.what_if: partitions below min ISR if …
    schedule = waves(answer, partitions_now, Limits(concurrent_moves_per_broker=5))

Call `waves.waves` again with the partitions as they are then: it leaves out what is done, and holds
back what may not move now.  Pure and deterministic: the order of the input does not matter.
"""
