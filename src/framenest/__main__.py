from framenest.cli import main

main()
