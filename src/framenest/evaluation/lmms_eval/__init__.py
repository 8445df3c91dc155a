"""MEC and other selectors inside lmms-eval, without a fork.

lmms-eval finds `hook.register` through the entry point `lmms_eval.models`. `framenest lmms-eval tasks` writes
task files that name the functions of `tasks`.
"""
