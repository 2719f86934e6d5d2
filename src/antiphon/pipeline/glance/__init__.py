"""The first look at a trace, in numpy inside Spark's tasks: what needs no second look, and what does.

Almost all messages are fine. So each task reads a part of the trace and reduces it to a narrow row per message, per
request and per event of a process; Spark moves these as a few large pieces of bytes to where all of one message, or of
one stretch of a process's history, come together, and there they are judged. What bits, keys and numbers prove needs no
second look. Nothing is ever called a violation here: what is not proved is a doubt, and is judged from the events.

    messages, requests     a part of the trace -> rows per message and request -> doubts, and multicasts with their keys
    history                a part of the trace, and these multicasts -> blocks of a process's events -> doubts
"""
