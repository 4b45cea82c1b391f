"""Pure: whether a reservation may stand beside those that do (statistical-assurance.txt, sections 3 to 5).

`statistical` promises by the distribution of the sum, `peak` by the sum of peaks. Both are an `Evaluator`
(`evaluator`): stretches of time between which reservations or pools change (`timeline`), slots that suit all calendars
(`grid`), what each class is asked for (`layers`, `sums`, kept in `sum_cache`). The cheapest classes for a demand are
found by `daemons.models.assurance.splits`.
"""
