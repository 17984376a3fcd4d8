"""The web app and the HTTP API over one store, for this machine or for a team.

    app.py         everything put together: routes, errors, access
    access.py      who may come in: token, cookie, Host, Origin, and the headers that every answer has
    names.py       ids in addresses
    account.py     an owner's store, agent and talks
    transfer.py    conversations out as a file, and in
    talks.py       the turns that run here, and who follows them
    problem.py     errors as problem+json, with stable codes
    serve.py       the sockets, and uvicorn
    api/           /api/v1, JSON
    page/          the page: templates, styles, scripts, and what fills them

It stands on the store and the agent, and never on SQL. The web framework, the template engine and what renders Markdown
are known in this room alone.
"""
