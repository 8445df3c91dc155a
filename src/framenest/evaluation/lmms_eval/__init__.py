"""MEC and its rivals inside lmms-eval, without a fork.

lmms-eval finds `hook.register` through the entry point `lmms_eval.models`; the tasks that
`framenest lmms-eval tasks` writes name the functions of `task_functions`.
"""
