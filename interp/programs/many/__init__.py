"""Many models as one question: which algorithm did each learn, and is it the same one?"""
