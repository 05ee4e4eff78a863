"""The program that forks sandboxed interpreters. Runs alone, under `python -I -S`: standard library and ctypes only.

    host (LocalPool) -- control + jobs socket per slot --> slot: forks one child per execution
                     -- one socket --> master: sets up isolation once, imports once, forks and re-forks the slots

`wire` and `values` are shared with the host; nothing else here is imported by it.
"""
