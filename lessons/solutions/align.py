def align(weights):
    scores = weights.log()
    best, came_from = scores[0], []
    for row in scores[1:]:
        before, index = best.cummax(0)  # the best path so far that ends at this column or before it
        came_from.append(index)
        best = before + row
    path = [int(best.argmax())]
    for index in reversed(came_from):
        path.append(int(index[path[-1]]))
    return path[::-1]
